-- NULL meant the default recipe. From now on it means that nobody has named the recipe.
UPDATE simsql.registry SET recipe = 'words12-log-1' WHERE recipe IS NULL;
